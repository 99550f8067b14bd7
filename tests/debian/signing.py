# SPDX-License-Identifier: Apache-2.0
"""A machine's own key for modules (MOK), made before anything is installed, and whether a module was signed with it."""

from __future__ import annotations

import hashlib
from typing import Final

from tests import patience
from tests.debian.roots import Root, skip_without

OWNER: Final = "owner of this machine"
KEY: Final = "var/lib/dkms/mok.key"
CERTIFICATE: Final = "var/lib/dkms/mok.pub"
CHECK: Final = "/srv/signed"
# The kernel's layout (scripts/sign-file.c): module, CMS in DER, 12 bytes that end with its length, and the mark. DKMS
# packs modules as the kernel's are.
_CHECK: Final = f"""\
#!/bin/bash
set -eu
there=$(mktemp -d)
python3 - "$1" "$there" <<'END'
import lzma, pathlib, sys
data = pathlib.Path(sys.argv[1]).read_bytes()
data = lzma.decompress(data) if sys.argv[1].endswith(".xz") else data
mark = b"~Module signature appended~\\n"
assert data.endswith(mark), "no signature"
end = len(data) - len(mark) - 12
size = int.from_bytes(data[end + 8 : end + 12], "big")
there = pathlib.Path(sys.argv[2])
(there / "body").write_bytes(data[: end - size])
(there / "cms").write_bytes(data[end - size : end])
END
openssl x509 -inform DER -in "${{2:-/{CERTIFICATE}}}" -out "$there/owner"
openssl cms -verify -binary -inform DER -in "$there/cms" -content "$there/body" \\
    -certfile "$there/owner" -nointern -noverify -out /dev/null 2>&1
rm -r "$there"
"""


def own_key(root: Root) -> None:
    """Gives the root a key as its owner would, where DKMS looks for it."""
    skip_without("openssl")
    (root.folder / KEY).parent.mkdir(parents=True, exist_ok=True)
    words = ["openssl", "req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "36500"]
    words += ["-subj", f"/CN={OWNER}/", "-outform", "DER"]
    words += ["-out", str(root.folder / CERTIFICATE), "-keyout", str(root.folder / KEY)]
    patience.run(words, capture_output=True, check=True)
    (root.folder / KEY).chmod(0o600)


def give_check(root: Root) -> None:
    """`CHECK MODULE [CERTIFICATE]` in the root: fails where the key of the machine did not sign that file."""
    script = root.folder / CHECK.lstrip("/")
    script.write_text(_CHECK)
    script.chmod(0o755)


def sums(root: Root) -> dict[str, str]:
    """Of the key and its certificate."""
    return {name: hashlib.sha256((root.folder / name).read_bytes()).hexdigest() for name in (KEY, CERTIFICATE)}
