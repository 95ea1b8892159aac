# docker build --build-arg VERSION=v0.1.0 -t tierlimit:v0.1.0 .

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod \
    go mod download
COPY . .
ARG VERSION=dev
ARG TARGETOS
ARG TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod \
    --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.stamped=$VERSION" -o /tierlimit ./cmd/tierlimit

# One static binary, and the certificates to verify a Redis behind TLS with. Nothing is written to
# the file system.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /tierlimit /tierlimit
USER 65532:65532
EXPOSE 8080 8081 8443
ENTRYPOINT ["/tierlimit"]
