//go:build !linux

package look

func plain(string) (Info, bool) { return Info{}, false }
