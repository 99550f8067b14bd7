# SPDX-License-Identifier: Apache-2.0
"""Backend shim: steers programs of the spatial lane, and shows both lanes as one backend."""
