# SPDX-License-Identifier: Apache-2.0
"""Control plane: finds GPU programs, steers them, and shows people what happens."""
