package trust

import (
	"fmt"
	"slices"
	"strings"
)

// The variables, by what they hold.
var (
	// The bundle, and nothing beside it: for whom the value is a file.
	bundleVariables = []string{
		"SSL_CERT_FILE",                         // OpenSSL, Go, Rust, Ruby, Erlang, uv
		"NIX_SSL_CERT_FILE",                     // OpenSSL and curl of Nix
		"CURL_CA_BUNDLE",                        // curl
		"GIT_SSL_CAINFO",                        // git
		"REQUESTS_CA_BUNDLE",                    // Python requests
		"PIP_CERT",                              // pip
		"NODE_EXTRA_CA_CERTS",                   // Node, npm
		"YARN_HTTPS_CA_FILE_PATH",               // Yarn
		"DENO_CERT",                             // Deno
		"CARGO_HTTP_CAINFO",                     // Cargo
		"AWS_CA_BUNDLE",                         // AWS
		"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",    // Google Cloud
		"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",      // gRPC
		"BUNDLE_SSL_CA_CERT",                    // Bundler
		"COMPOSER_CAFILE",                       // Composer
		"PERL_LWP_SSL_CA_FILE", "HTTPS_CA_FILE", // Perl
		"HEX_CACERTS_PATH", // Hex
	}
	proxyVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"}
)

// own is what is reached without the proxy: what the box itself listens at.
const own = "localhost,127.0.0.1,::1"

// Environment returns env with what tells programs of the proxy, which listens at port of
// 127.0.0.1, and of [BundleFile] and [StoreFile]. What env sets already stays as it is, but
// for the options of Java, to which ours are added. routed says that programs which know of no
// proxy get out all the same: Node is then not told, as that makes each start of it take
// twice as long and longer.
func Environment(env []string, port uint16, routed bool) []string {
	var all []string
	set := func(name, value string) { all = append(all, name+"="+value) }
	proxy := fmt.Sprintf("http://127.0.0.1:%d", port)
	for _, name := range proxyVariables {
		// Programs of one kind know them in lower case only, of another in upper case.
		set(name, proxy)
		set(strings.ToLower(name), proxy)
	}
	set("NO_PROXY", own)
	set("no_proxy", own)
	if !routed {
		set("NODE_USE_ENV_PROXY", "1")
	}
	for _, name := range bundleVariables {
		set(name, BundleFile)
	}
	set("JAVA_TOOL_OPTIONS", java(port))
	out := slices.Clone(env)
	for _, kv := range all {
		name, value, _ := strings.Cut(kv, "=")
		i := slices.IndexFunc(out, func(o string) bool { return strings.HasPrefix(o, name+"=") })
		switch {
		case i < 0:
			out = append(out, kv)
		case name == "JAVA_TOOL_OPTIONS": // the last of equal options counts
			out[i] = name + "=" + value + " " + strings.TrimPrefix(out[i], name+"=")
		}
	}
	return out
}

// java is what every virtual machine reads before its own command line.
func java(port uint16) string {
	words := []string{
		"-Djavax.net.ssl.trustStore=" + StoreFile, "-Djavax.net.ssl.trustStoreType=JKS",
		"-Djavax.net.ssl.trustStorePassword=" + StorePassword, "-Dhttp.nonProxyHosts=localhost|127.*|[::1]",
	}
	for _, scheme := range []string{"http", "https"} {
		words = append(words, fmt.Sprintf("-D%s.proxyHost=127.0.0.1", scheme), fmt.Sprintf("-D%s.proxyPort=%d", scheme, port))
	}
	return strings.Join(words, " ")
}
