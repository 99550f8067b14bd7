# SPDX-License-Identifier: Apache-2.0
"""`python3 -m detshare.ctl.kubernetes`: what runs in the pod of each node."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    try:
        import grpc
        from google.protobuf import message
    except ImportError as missing:
        sys.exit(f"detshare.ctl.kubernetes needs {missing.name}\nnext: pip install 'detshare[kubernetes]'")
    del grpc, message
    from detshare.ctl.kubernetes.command import main

    main()
