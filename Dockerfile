# A static binary in an empty image. Build: docker build -t tautline .
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /tautline ./cmd/tautline

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /tautline /tautline
COPY LICENSE LICENSE.bpf /
COPY LICENSES /LICENSES/
EXPOSE 8080 9901
ENTRYPOINT ["/tautline"]
CMD ["agent"]
