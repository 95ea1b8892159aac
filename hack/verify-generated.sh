#!/usr/bin/env bash
# Fails when a generated file is not what its source generates. The working tree is not touched.
set -euo pipefail
cd "$(dirname "$0")/.."
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

mkdir -p "$fresh/ingress-nginx" "$fresh/chart/crds" "$fresh/chart/files"
make --no-print-directory -s generate OBJECT_DIR="$fresh/object" CRD_DIR="$fresh/crd" RBAC_DIR="$fresh/rbac" INGRESS_NGINX_DIR="$fresh/ingress-nginx" CHART_DIR="$fresh/chart"
stale=0
compare() {
	if ! diff -u "$1" "$2"; then
		echo "verify-generated: $1 is not fresh: run 'make generate' and commit" >&2
		stale=1
	fi
}
compare api/v1alpha1/zz_generated.deepcopy.go "$fresh/object/zz_generated.deepcopy.go"
compare config/crd/bases "$fresh/crd"
compare config/rbac/role.yaml "$fresh/rbac/role.yaml"
compare config/ingress-nginx "$fresh/ingress-nginx"
for copy in crds files values.schema.json README.md; do
	compare "charts/tierlimit/$copy" "$fresh/chart/$copy"
done
exit $stale
