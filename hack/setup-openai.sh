#!/usr/bin/env bash
# Prints the directory in which OpenAI's SDK for Node.js is installed, whose retries the tests watch.
# It is installed once into the user's cache, keyed by the lock file.
set -euo pipefail

package=$(cd "$(dirname "$0")/openai-sdk" && pwd)
key=$(sha256sum "$package/package-lock.json" | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tierlimit/openai-sdk
target=$cache/$key

if [[ ! -d $target/node_modules/openai ]]; then
	mkdir -p "$cache"
	exec 9>"$cache/lock"
	flock 9 # two test runs at once on a fresh machine: the second waits and finds the work done
	if [[ ! -d $target/node_modules/openai ]]; then
		echo "setup-openai: installing the SDK into $target" >&2
		staging=$(mktemp -d "$cache/install.XXXXXX")
		trap 'rm -rf "$staging"' EXIT
		cp "$package"/package{,-lock}.json "$staging"
		npm ci --prefix "$staging" --ignore-scripts --no-audit --no-fund --loglevel=error >&2
		chmod 0755 "$staging"
		rm -rf "$target"
		mv "$staging" "$target"
	fi
fi
echo "$target"
