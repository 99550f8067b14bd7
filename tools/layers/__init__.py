# SPDX-License-Identifier: Apache-2.0
"""The order between parts of the source, checked."""
