#!/bin/sh
# Installs fcac for a hub or a site: a virtual environment and the entry point. The image is built by it, and it
# works without Docker as well.
#   install.sh SOURCE PREFIX      for instance: install.sh . /opt/fcac
# FCAC_PIP_OPTIONS are passed on to pip, for machines that install from a folder of wheels.
set -eu
source=${1:?the folder with the source, or a wheel}
prefix=${2:?where to install, for instance /opt/fcac}
here=$(cd "$(dirname "$0")" && pwd)
python3 -m venv "$prefix"
constraints=
[ ! -e "$source/constraints.txt" ] || constraints="--constraint $source/constraints.txt"
# shellcheck disable=SC2086  # options are separate words
"$prefix/bin/python" -m pip install --no-cache-dir ${FCAC_PIP_OPTIONS:-} $constraints "$source[federation,privacy,sql]"
install -m 0755 "$here/entrypoint.sh" "$prefix/bin/fcac-entrypoint"
"$prefix/bin/fcac" --version
