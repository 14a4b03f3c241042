#!/bin/sh
# Fetch the libraries of the web console from npm, at the versions below, into understudy/http/console/static/vendor,
# and axe-core, which only tests use. Needs npm. Look at `git diff --stat`, run the console's tests, and commit.
set -eu
cd "$(dirname "$0")/.."
PREACT=11.2.0 HTM=3.1.1 UPLOT=1.6.32 AXE=4.14.1
vendor=$PWD/understudy/http/console/static/vendor
tests=$PWD/tests/understudy/http/console/vendor
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$vendor/licences" "$tests"
for package in "preact@$PREACT" "htm@$HTM" "uplot@$UPLOT" "axe-core@$AXE"; do
  (cd "$work" && npm pack --silent "$package" >/dev/null)
  mkdir "$work/${package%@*}"
  tar -xzf "$work/${package%@*}"-*.tgz -C "$work/${package%@*}" --strip-components 1
done
plain() { sed -e '/^\/\/# sourceMappingURL=/d' -e 's|//# sourceMappingURL=.*$||' "$1"; }
plain "$work/preact/dist/preact.mjs" >"$vendor/preact.js"
plain "$work/preact/hooks/dist/hooks.mjs" | sed 's|from"preact"|from"./preact.js"|' >"$vendor/hooks.js"
plain "$work/htm/dist/htm.module.js" >"$vendor/htm.js"
{ plain "$work/uplot/dist/uPlot.iife.min.js"; printf '\nexport default uPlot;\n'; } >"$vendor/uplot.js"
cp "$work/uplot/dist/uPlot.min.css" "$vendor/uplot.css"
for name in preact htm uplot; do cp "$work/$name/LICENSE" "$vendor/licences/$name.txt"; done
cp "$work/axe-core/axe.min.js" "$tests/axe.min.js"
cp "$work/axe-core/LICENSE" "$tests/axe-core.txt"
cat >"$vendor/README.md" <<END
# Libraries of the console

Unchanged but for names of modules. \`scripts/renew_console_libraries.sh\` fetches them from npm.

| library | version | licence |
|---|---|---|
| Preact | $PREACT | MIT |
| htm | $HTM | Apache-2.0 |
| uPlot | $UPLOT | MIT |
END
