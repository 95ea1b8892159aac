#!/usr/bin/env bash
# Prints the directory that holds the caddy and the traefik the recipes are tested with, and the
# definitions of Traefik's kinds (traefik-crds.yaml).
#
# Both are built once from hack/proxies into the user's cache, keyed by version, so that every later
# clone on this machine finds them. About 15 minutes on 2 cores the first time, nothing after that.
set -euo pipefail
. "$(dirname "$0")/once.sh"

modules=$(cd "$(dirname "$0")/proxies" && pwd)
version_of() { (cd "$modules/$1" && go list -m -f '{{.Version}}' "$2"); }
caddy=$(version_of caddy github.com/caddyserver/caddy/v2)
traefik=$(version_of traefik github.com/traefik/traefik/v3)
target=${XDG_CACHE_HOME:-$HOME/.cache}/tierlimit/proxies/caddy-$caddy-traefik-$traefik

complete() { [[ -x $target/caddy && -x $target/traefik && -f $target/traefik-crds.yaml ]]; }

build() {
	local package=$1 output=$2
	say "building $(basename "$output") ..."
	(cd "$modules/$(basename "$output")" && go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$output" "$package")
}

fill() {
	say "building caddy $caddy and traefik $traefik once into $target (about 15 minutes on 2 cores)"
	build github.com/caddyserver/caddy/v2/cmd/caddy "$1/caddy"
	build github.com/traefik/traefik/v3/cmd/traefik "$1/traefik"
	local sources
	sources=$(cd "$modules/traefik" && go list -m -f '{{.Dir}}' github.com/traefik/traefik/v3)
	install -m 0644 "$sources/docs/content/reference/dynamic-configuration/kubernetes-crd-definition-v1.yml" "$1/traefik-crds.yaml"
}

once "$target"
