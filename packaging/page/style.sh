#!/usr/bin/env bash
# Checks (--check) or fixes (--write) the style of the page's scripts; without npm or its registry it
# says so.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=packaging/page
if ! command -v npm >/dev/null; then echo "npm is missing: the page's scripts are not checked"; exit 0; fi
if [ ! "$folder/node_modules/.package-lock.json" -nt "$folder/package-lock.json" ]; then
  if ! npm ci --prefix "$folder" --silent --no-audit --no-fund; then
    echo "npm cannot install eslint and prettier: the page's scripts are not checked"; exit 0
  fi
fi
fix=(); [ "$1" = --check ] || fix=(--fix)
"$folder/node_modules/.bin/eslint" --config "$folder/eslint.config.js" "${fix[@]}" "services/aggregator/**/*.js"
"$folder/node_modules/.bin/prettier" --no-config --print-width 100 --object-wrap collapse --log-level warn "$1" \
  "services/aggregator/**/*.{js,css}" "$folder/*.js"
