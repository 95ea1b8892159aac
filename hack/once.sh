# Sourced by the set-up scripts: what is made once and kept in the user's cache, so that every later
# clone on this machine finds it.
#
# once TARGET makes the directory TARGET unless it is complete, and prints it. The script that
# sources this defines two functions: complete, which looks at TARGET, and fill, which is given an
# empty directory to put everything into. What they print is for people.
say() { echo "$(basename "$0" .sh): $*" >&2; }

once() {
	local target=$1 cache
	cache=$(dirname "$target")
	if ! complete; then
		mkdir -p "$cache"
		exec 9>"$cache/lock"
		flock 9 # two test runs at once on a fresh machine: the second waits and finds the work done
		if ! complete; then
			staging=$(mktemp -d "$cache/making.XXXXXX")
			trap 'rm -rf "$staging"' EXIT
			fill "$staging" >&2
			chmod 0755 "$staging"
			rm -rf "$target"
			mv "$staging" "$target"
		fi
	fi
	echo "$target"
}
