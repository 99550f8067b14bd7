# SPDX-License-Identifier: Apache-2.0
"""detshare.runtime: the Python half of what runs in a tenant's process (pools, parking); its C half lies beside it."""
