# SPDX-License-Identifier: Apache-2.0
"""Programs that the experiments run and steer from outside; each is run by its path and imports nothing of DetShare."""
