# SPDX-License-Identifier: Apache-2.0
"""`python -m detshare.tools.cudaapi`: write C files of runtime/ from runtime/api.json, or with --check compare."""

from __future__ import annotations

from detshare.tools.cudaapi.api import API, BadApi
from detshare.tools.cudaapi.generator import render
from detshare.tools.generated import command

SUMMARY = "Generate the C files of libdetshare.so that follow from the list of the driver's entry points."
main = command("cudaapi", str(API), SUMMARY, render, BadApi)

if __name__ == "__main__":
    main()
