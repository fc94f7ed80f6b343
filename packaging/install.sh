#!/bin/sh
# Installs fcac for a hub or a site: a virtual environment, the entry point, and a bill of materials (sbom.json). The
# image is built by it, and it works without Docker as well.
#   install.sh SOURCE PREFIX      for instance: install.sh . /opt/fcac
# On Linux, x86-64 and Python 3.11 every archive must have the hash in requirements.txt; elsewhere constraints.txt holds
# the versions. FCAC_PIP_OPTIONS are passed on to pip, for machines that install from a folder of wheels.
set -eu
source=${1:?the folder with the source, or a wheel}
prefix=${2:?where to install, for instance /opt/fcac}
here=$(cd "$(dirname "$0")" && pwd)
python3 -m venv "$prefix"
pip() { "$prefix/bin/python" -m pip install --no-cache-dir ${FCAC_PIP_OPTIONS:-} "$@"; }
if [ "$("$prefix/bin/python" -c 'import platform, sys; print(*sys.version_info[:2], platform.system(), platform.machine())')" = "3 11 Linux x86_64" ]; then
  pip --require-hashes --only-binary :all: --requirement "$here/requirements.txt"
  pip --no-deps --no-build-isolation "$source"
else
  pip --constraint "$here/../constraints.txt" "$source[federation,privacy,sql]"
fi
install -m 0755 "$here/entrypoint.sh" "$prefix/bin/fcac-entrypoint"
"$prefix/bin/python" "$here/sbom.py" > "$prefix/sbom.json"
"$prefix/bin/fcac" --version
