# SPDX-License-Identifier: Apache-2.0
"""GPUs of a node for Kubernetes: dynamic resource allocation (DRA), and the older device plugins."""
