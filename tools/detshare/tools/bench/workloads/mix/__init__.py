# SPDX-License-Identifier: Apache-2.0
"""Programs that live through all cells of a mix and work when they are told to; each is run by its path."""
