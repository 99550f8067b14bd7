# SPDX-License-Identifier: Apache-2.0
"""What policies decided: kept in a bounded log, told in words, played again with another policy."""
