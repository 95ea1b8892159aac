#!/usr/bin/env bash
# Prints the directory in which OpenAI's SDK for Node.js is installed, whose retries the tests watch.
# It is installed once into the user's cache, keyed by the lock file.
set -euo pipefail
. "$(dirname "$0")/once.sh"

package=$(cd "$(dirname "$0")/openai-sdk" && pwd)
key=$(sha256sum "$package/package-lock.json" | cut -c1-16)
target=${XDG_CACHE_HOME:-$HOME/.cache}/tierlimit/openai-sdk/$key

complete() { [[ -d $target/node_modules/openai ]]; }

fill() {
	say "installing the SDK into $target"
	cp "$package"/package{,-lock}.json "$1"
	npm ci --prefix "$1" --ignore-scripts --no-audit --no-fund --loglevel=error
}

once "$target"
