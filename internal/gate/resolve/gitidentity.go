package resolve

import "unicode"

// GitIdentity returns who git would say makes a commit in the workspace: user.name and
// user.email of the repository, the person or the machine; "" for what none says, or what
// cannot be read for certain.
func (v View) GitIdentity() (name, email string) {
	c, err := v.globalConfig()
	if s, none := v.repo(v.Workspace, v.Workspace); none == nil && s.common != "" {
		c, err = s.config()
	}
	if err != nil {
		return "", ""
	}
	name, _ = c.get("user", "", "name")
	email, _ = c.get("user", "", "email")
	return printing(name), printing(email)
}

// printing is text, "" if it holds what does not print.
func printing(text string) string {
	for _, c := range text {
		if !unicode.IsPrint(c) {
			return ""
		}
	}
	return text
}
