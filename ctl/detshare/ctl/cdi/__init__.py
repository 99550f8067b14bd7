# SPDX-License-Identifier: Apache-2.0
"""Devices for container engines: specifications of the Container Device Interface (CDI), and their hook."""
