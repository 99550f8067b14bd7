# SPDX-License-Identifier: Apache-2.0
"""The policies that DetShare brings, one file each. docs/use/policies.md is their catalogue."""
