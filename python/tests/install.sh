#!/usr/bin/env bash
# install.sh PYTHON SOURCE VENV: installs the module into a new virtual environment by pip, offline, and tries it there.
set -euo pipefail
python=$1 source=$2 venv=$3
rm -rf "$venv"
"$python" -m venv --system-site-packages "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-build-isolation --no-index "$source"
# Not from the source tree, and not what else may be on the path.
cd "$venv"
env -u PYTHONPATH "$venv/bin/python" - "$venv" "$source" <<'PYTHON'
import importlib.metadata
import pathlib
import sys

import numpy

import exattn

venv, source = map(pathlib.Path, sys.argv[1:])
folder = pathlib.Path(exattn.__file__).resolve().parent
assert venv.resolve() in folder.parents, folder
assert importlib.metadata.version("exattn") == exattn.__version__, exattn.__version__
for file in ("py.typed", "__init__.pyi"):
    assert (folder / file).is_file(), file
data = source / "conformance/data/ocr-attention"
q, k, v = (numpy.load(data / f"block_a_{name}.npy") for name in "qkv")
# README.md has this hash, of another program.
wanted = "0afeeeaad273aa51ddd69eeb93f933aeaa25d53a9e76c573df881a5d25de7b03"
assert wanted in (source / "README.md").read_text()
assert exattn.sha256(exattn.attention(q, k, v)) == wanted
print(f"installed exattn {exattn.__version__}, and the block of a real model has its hash")
PYTHON
