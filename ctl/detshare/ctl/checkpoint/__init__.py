# SPDX-License-Identifier: Apache-2.0
"""The driver's own checkpoint of a process (cuCheckpointProcess*): its calls, and a child process that makes them."""
