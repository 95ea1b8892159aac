// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package proxytest

// nginxTemplate has the directives of ingress-nginx v1.12 to v1.15 that a check depends on, in the
// order of its locations. Endpoints stand where ingress-nginx lets Lua choose one. It is one
// process, so that none is left behind when a test is killed.
const nginxTemplate = `
load_module {{.Modules}}/ndk_http_module.so;
load_module {{.Modules}}/ngx_http_lua_module.so;
load_module {{.Modules}}/ngx_http_headers_more_filter_module.so;
daemon off;
master_process off;
pid {{.Folder}}/nginx.pid;
error_log stderr warn;
events { worker_connections 512; }
http {
  client_body_temp_path {{.Folder}}/body;
  proxy_temp_path {{.Folder}}/proxy;
  fastcgi_temp_path {{.Folder}}/fastcgi;
  uwsgi_temp_path {{.Folder}}/uwsgi;
  scgi_temp_path {{.Folder}}/scgi;
  types { text/html html; application/json json; }
  default_type text/html;
  access_log off;
  log_subrequest on;
  uninitialized_variable_warn off;
  variables_hash_bucket_size 256;
  variables_hash_max_size 2048;
  client_body_buffer_size 8k;
  more_clear_headers Server;
  map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
  map $http_x_request_id $req_id { default $http_x_request_id; '' $request_id; }
{{- if .ErrorPages}}
  proxy_intercept_errors on;
  error_page 403 = @custom_upstream-default-backend_403;
{{- end}}
{{- range $i, $_ := .Routes}}{{if .Keepalive}}
  upstream auth-{{$i}} { server {{.Check}}; keepalive 4; keepalive_requests 1000; keepalive_timeout 60s; }
{{- end}}{{end}}
  {{.HTTPSnippet}}
  server {
    listen {{.Listen}};
    server_name _;
    set $proxy_upstream_name -;
    {{.ServerSnippet}}
    {{.HostSnippet}}
{{- with .ErrorPages}}
    location @custom_upstream-default-backend_403 {` + nginxErrorLocation + `
      proxy_pass http://{{.}};
    }
{{- end}}
{{- range $i, $_ := .Routes}}
{{- with .ErrorBackend}}
    location @custom_custom-default-backend-{{$i}}_403 {` + nginxErrorLocation + `
      proxy_pass http://{{.}};
    }
{{- end}}
{{- if .AuthURL}}
    location = /_external-auth-{{$i}}-Prefix {` + nginxAuthLocation + `
    }
{{- end}}
{{- if .SigninURL}}
    location @signin-{{$i}} {
      internal;
      add_header Set-Cookie $auth_cookie;
      return 302 {{.SigninURL}}?rd=$scheme://$http_host$request_uri;
    }
{{- end}}
    location {{.Path}} {` + nginxLocation + `
      proxy_pass http://{{$.Application}};
      proxy_redirect off;
    }
{{- end}}
  }
}
`

// nginxErrorLocation is where an error goes that a Service shows a page for.
const nginxErrorLocation = `
      internal;
      proxy_intercept_errors off;
      proxy_set_header X-Code 403;
      proxy_set_header X-Format $http_accept;
      proxy_set_header X-Original-URI $request_uri;
      proxy_set_header X-Namespace $namespace;
      proxy_set_header X-Ingress-Name $ingress_name;
      proxy_set_header X-Service-Name $service_name;
      proxy_set_header X-Service-Port $service_port;
      proxy_set_header X-Request-ID $req_id;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header Host $best_http_host;
      set $proxy_upstream_name custom;
      rewrite (.*) / break;`

// nginxAuthLocation asks the check.
const nginxAuthLocation = `
      internal;
      access_log off;
      set $proxy_upstream_name application;
      proxy_pass_request_body off;
      proxy_ssl_server_name on;
      proxy_pass_request_headers on;
      proxy_set_header Content-Length "";
      proxy_set_header X-Forwarded-Proto "";
      proxy_set_header X-Request-ID $req_id;
      proxy_set_header Host {{.Check}};
      proxy_set_header X-Original-URL $scheme://$http_host$request_uri;
      proxy_set_header X-Original-Method $request_method;
      proxy_set_header X-Sent-From nginx-ingress-controller;
      proxy_set_header X-Real-IP $remote_addr;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Auth-Request-Redirect $request_uri;
      proxy_buffering off;
      proxy_buffer_size 4k;
      proxy_buffers 4 4k;
      proxy_request_buffering on;
      client_max_body_size 64m;
      {{.AuthSnippet}}
      proxy_http_version 1.1;
{{- if .Keepalive}}
      proxy_set_header Connection "";
      set $target {{.OnUpstream (printf "auth-%d" $i)}};
{{- else}}
      set $target {{.AuthURL}};
{{- end}}
      proxy_pass $target;`

// nginxLocation is what a path has, except for where it leads.
const nginxLocation = `
      set $namespace default;
      set $ingress_name ingress-{{$i}};
      set $service_name application;
      set $service_port 80;
      set $proxy_upstream_name application;
      set $pass_access_scheme $scheme;
      set $best_http_host $http_host;
      set $pass_port $server_port;
{{- if .Denied}}
      allow 192.0.2.1;
      deny all;
{{- end}}
{{- if and .AuthURL .Keepalive}}
      set $auth_cookie '';
      add_header Set-Cookie $auth_cookie;
      access_by_lua_block {
        local answer = ngx.location.capture("/_external-auth-{{$i}}-Prefix", { method = ngx.HTTP_GET, body = "", share_all_vars = false })
        if answer.status == ngx.HTTP_OK then
          ngx.var.auth_cookie = answer.header["Set-Cookie"]
          return
        end
        if answer.status == ngx.HTTP_UNAUTHORIZED or answer.status == ngx.HTTP_FORBIDDEN then
          ngx.exit(answer.status)
        end
        ngx.exit(ngx.HTTP_INTERNAL_SERVER_ERROR)
      }
{{- else if .AuthURL}}
      auth_request /_external-auth-{{$i}}-Prefix;
      auth_request_set $auth_cookie $upstream_http_set_cookie;
      add_header Set-Cookie $auth_cookie;
{{- end}}
{{- if .SigninURL}}
      error_page 401 = @signin-{{$i}};
{{- end}}
      client_max_body_size 64m;
      proxy_set_header Host $best_http_host;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
      proxy_set_header X-Request-ID $req_id;
      proxy_set_header X-Real-IP $remote_addr;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Host $best_http_host;
      proxy_set_header X-Forwarded-Port $pass_port;
      proxy_set_header X-Forwarded-Proto $pass_access_scheme;
      proxy_set_header X-Forwarded-Scheme $pass_access_scheme;
      proxy_set_header X-Scheme $pass_access_scheme;
      proxy_set_header X-Original-Forwarded-For $http_x_forwarded_for;
      proxy_set_header Proxy "";
      proxy_connect_timeout 5s;
      proxy_send_timeout 60s;
      proxy_read_timeout 60s;
      proxy_buffering off;
      proxy_buffer_size 4k;
      proxy_buffers 4 4k;
      proxy_request_buffering on;
      proxy_http_version 1.1;
      proxy_cookie_domain off;
      proxy_cookie_path off;
      proxy_next_upstream error timeout;
      proxy_next_upstream_tries 3;
      {{.Snippet}}
      {{$.LocationSnippet}}
{{- if .ErrorBackend}}
{{- if not .KeepErrors}}
      proxy_intercept_errors on;
{{- end}}
      error_page 403 = @custom_custom-default-backend-{{$i}}_403;
{{- end}}`
