#!/usr/bin/env bash
# Looks for known vulnerabilities in what is shipped: the binary of cmd/tierlimit, as it is linked.
# The database is that of golang.org/x/vulndb, a Go module pinned here, which the module proxy has
# even where vuln.go.dev cannot be reached. With GOVULNDB set, that database is asked instead:
#   GOVULNDB=https://vuln.go.dev make verify
#
# A vulnerability in a module fails, where the functions that have it are linked. One in Go's own library is printed only: it is not mended in
# this repository, but by building with the Go that the finding names.
set -euo pipefail
cd "$(dirname "$0")/.."
vulndb=golang.org/x/vulndb@v0.0.0-20261105234957-e22db6528018

if [[ -z ${GOVULNDB:-} ]]; then
	directory=$(go mod download -json "$vulndb" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	[[ -n $(find "$directory/data/osv" -name 'GO-*.json' -print -quit) ]] || { echo "vulncheck: there are no entries in $vulndb" >&2; exit 1; }
	GOVULNDB=file://$directory/data/osv # a folder of entries does for govulncheck, without an index
fi
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$built/tierlimit" ./cmd/tierlimit # with its symbols

code=0
bin/govulncheck -mode binary -db "$GOVULNDB" "$built/tierlimit" >"$built/findings" || code=$?
case $code in
0) exit 0 ;;
3) ;; # found some
*) cat "$built/findings" >&2; exit "$code" ;;
esac
if grep -q '^  Module: ' "$built/findings"; then
	cat "$built/findings" >&2
	echo "vulncheck: update the modules above, or say in hack/vulncheck.sh why they do no harm" >&2
	exit 1
fi
echo "vulncheck: nothing is known of the modules. Build releases with a Go in which these are fixed:"
awk '/^Vulnerability #/ {id = $3} /^    Found in: / {found = $3} /^    Fixed in: / {print "  " id ": " found ", fixed in " $3}' "$built/findings"
