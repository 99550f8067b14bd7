# SPDX-License-Identifier: Apache-2.0
"""What runs in the guest: each module is a program that prints JSON lines and judges nothing."""
