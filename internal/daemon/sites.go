package daemon

import (
	"ringfence/internal/act/weburl"
	"ringfence/internal/daemon/api"
)

// maxSites bounds what one server may reach.
const maxSites = 256

// sitesOf are the hosts of a server.
func sitesOf(in api.ServerInfo) ([]weburl.Site, error) {
	if len(in.Hosts) > maxSites {
		return nil, api.Errorf(api.CodeBadRequest, "server %s names %d hosts, at most %d", in.Name, len(in.Hosts), maxSites)
	}
	all := make([]weburl.Site, 0, len(in.Hosts))
	for _, h := range in.Hosts {
		s, err := weburl.ParseSite(h)
		if err != nil {
			return nil, api.Errorf(api.CodeBadRequest, "the host %q of server %s %v", h, in.Name, err)
		}
		all = append(all, s)
	}
	return all, nil
}
