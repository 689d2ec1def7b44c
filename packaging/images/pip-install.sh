#!/bin/sh
# Makes the environment /opt/venv, or VENV, and installs what a lock names into it: pip-install.sh LOCK [OPTION OF PIP...]
# Nothing but the lock's own hashes and those of the build backend (build.lock) decides what is installed: wheels, and antlr4's
# runtime (of omegaconf and hydra), which is published as source alone. pip would fetch what it is built with without a hash.
set -eu
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
lock=$1
shift
python -m venv --without-pip "${VENV:-/opt/venv}"
beside=$(dirname "$lock")
made=$(mktemp -d)
source='/^antlr4-python3-runtime==/,/[^\\]$/'
sed "${source}d" "$lock" >"$made/wheels.lock"
sed -n "${source}p" "$lock" >"$made/sources.lock"
into_venv() { python -m pip --python "${VENV:-/opt/venv}/bin/python" install -q --no-deps "$@"; }
into_venv --only-binary :all: --require-hashes "$@" -r "$made/wheels.lock"
if [ -s "$made/sources.lock" ]; then
  python -m pip install -q --require-hashes -r "$beside/build.lock"
  python -m pip wheel -q --no-deps --no-build-isolation --require-hashes -w "$made" -r "$made/sources.lock"
  into_venv --no-index "$@" "$made"/*.whl
fi
rm -rf "$made"
# botocore describes all services of AWS; S3 and the ways to credentials are used, 6 of 31 MB.
find "${VENV:-/opt/venv}"/lib/python*/site-packages/botocore/data -mindepth 1 -maxdepth 1 -type d \
  ! -name s3 ! -name sts ! -name 'sso*' ! -name signin -exec rm -r {} + 2>/dev/null || true
