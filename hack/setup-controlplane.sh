#!/usr/bin/env bash
# Prints the directory that holds the etcd, kube-apiserver and kubectl the tests run against.
#
# KUBEBUILDER_ASSETS, when set, is that directory. Otherwise the three are built once from
# hack/controlplane/go.mod into the user's cache, keyed by version, so that every later clone
# on this machine finds them. About 8 minutes on 2 cores the first time, nothing after that.
set -euo pipefail
. "$(dirname "$0")/once.sh"

binaries=(etcd kube-apiserver kubectl)

if [[ -n ${KUBEBUILDER_ASSETS:-} ]]; then
	for binary in "${binaries[@]}"; do
		if [[ ! -x $KUBEBUILDER_ASSETS/$binary ]]; then
			say "KUBEBUILDER_ASSETS is $KUBEBUILDER_ASSETS, but there is no executable $binary in it."
			say "Fill it with 'setup-envtest use', or unset it to have the binaries built from source."
			exit 1
		fi
	done
	(cd "$KUBEBUILDER_ASSETS" && pwd)
	exit 0
fi

module=$(cd "$(dirname "$0")/controlplane" && pwd)
version_of() { (cd "$module" && go list -m -f '{{.Version}}' "$1"); }
kubernetes=$(version_of k8s.io/kubernetes)
etcd=$(version_of go.etcd.io/etcd/server/v3)
target=${XDG_CACHE_HOME:-$HOME/.cache}/tierlimit/controlplane/kubernetes-$kubernetes-etcd-$etcd

complete() {
	for binary in "${binaries[@]}"; do [[ -x $target/$binary ]] || return 1; done
}

build() {
	local package=$1 output=$2 ldflags=${3:-}
	say "building $(basename "$output") ..."
	(cd "$module" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w $ldflags" -o "$output" "$package")
}

fill() {
	say "building etcd $etcd, kube-apiserver and kubectl $kubernetes once into $target (about 8 minutes on 2 cores)"
	# An API server that does not know its own version is refused by its clients.
	local major minor stamp="" package
	IFS=. read -r major minor _ <<<"${kubernetes#v}"
	for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		stamp+=" -X $package.gitVersion=$kubernetes -X $package.gitMajor=$major -X $package.gitMinor=$minor -X $package.gitTreeState=clean"
	done
	build go.etcd.io/etcd/server/v3 "$1/etcd"
	build k8s.io/kubernetes/cmd/kubectl "$1/kubectl" "$stamp"
	build k8s.io/kubernetes/cmd/kube-apiserver "$1/kube-apiserver" "$stamp"
}

once "$target"
