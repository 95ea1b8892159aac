#!/usr/bin/env bash
# Prints the directory that holds the helm that the chart is tested with.
#
# It is built once from hack/helm/go.mod into the user's cache, keyed by version, so that every later
# clone on this machine finds it. About 7 minutes on 2 cores the first time, nothing after that.
set -euo pipefail
. "$(dirname "$0")/once.sh"

module=$(cd "$(dirname "$0")/helm" && pwd)
version=$(cd "$module" && go list -m -f '{{.Version}}' helm.sh/helm/v4)
target=${XDG_CACHE_HOME:-$HOME/.cache}/tierlimit/helm/helm-$version

complete() { [[ -x $target/helm ]]; }

fill() {
	say "building helm $version once into $target (about 7 minutes on 2 cores)"
	# Without the stamp it would call itself v4.0 in everything that it prints.
	(cd "$module" && CGO_ENABLED=0 go build -trimpath -buildvcs=false \
		-ldflags "-s -w -X helm.sh/helm/v4/internal/version.version=$version" \
		-o "$1/helm" helm.sh/helm/v4/cmd/helm)
}

once "$target"
