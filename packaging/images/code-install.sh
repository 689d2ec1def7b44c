#!/bin/sh
# Installs our code, which is in /src, into /opt/plumbline; the build backend is decided by the hashes of build.lock.
set -eu
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
cd /src
python -m pip install -q --require-hashes -r build.lock
python -m pip install -q --no-deps --no-build-isolation --target /opt/plumbline .
