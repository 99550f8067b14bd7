# SPDX-License-Identifier: Apache-2.0
"""What every layer may know: plain values, errors, configuration, and the protocols of drivers and backends."""
