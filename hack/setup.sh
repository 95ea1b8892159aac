#!/usr/bin/env bash
# Installs what the tests need from Debian's packages, and nothing when it is there already:
# redis-server (the store), promtool and Prometheus (tests of the alerts and the dashboard), a C compiler (the race detector), nginx
# with the modules that ingress-nginx has, HAProxy, Node.js (an SDK that repeats requests), and wrk
# (the load of `make bench`).
set -euo pipefail

packages=()
command -v redis-server >/dev/null || packages+=(redis-server)
{ command -v promtool && command -v prometheus; } >/dev/null || packages+=(prometheus)
command -v cc >/dev/null || packages+=(gcc libc6-dev)
nginx_modules=/usr/lib/nginx/modules
[[ -x /usr/sbin/nginx ]] || packages+=(nginx)
[[ -e $nginx_modules/ngx_http_lua_module.so ]] || packages+=(libnginx-mod-http-lua)
[[ -e $nginx_modules/ngx_http_headers_more_filter_module.so ]] || packages+=(libnginx-mod-http-headers-more-filter)
[[ -x /usr/sbin/haproxy ]] || packages+=(haproxy)
command -v node >/dev/null || packages+=(nodejs)
command -v npm >/dev/null || packages+=(npm)
command -v wrk >/dev/null || packages+=(wrk)
((${#packages[@]})) || exit 0

if ! command -v apt-get >/dev/null; then
	echo "setup: this is not Debian or a relative of it: install ${packages[*]} with your package manager" >&2
	exit 1
fi
as_root=()
if ((EUID != 0)); then
	command -v sudo >/dev/null || { echo "setup: run as root or install sudo: ${packages[*]} must be installed" >&2; exit 1; }
	as_root=(sudo)
fi
echo "setup: installing ${packages[*]}" >&2

# The packages would start their servers; the tests start their own, on free ports.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
	printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
	"${as_root[@]}" chmod +x "$policy"
	trap '"${as_root[@]}" rm -f "$policy"' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq >&2
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${packages[@]}" >&2
