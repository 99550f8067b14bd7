# SPDX-License-Identifier: Apache-2.0
"""Mixes: a program whose latency counts beside one to four others, under DetShare and under what there is without."""
