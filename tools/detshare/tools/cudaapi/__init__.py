# SPDX-License-Identifier: Apache-2.0
"""runtime/api.json, the driver's entry points, and the C files of libdetshare.so that are made from it."""
