//go:build windows

package jobobject

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/windows"
)

// The structures and values here are those of golang.org/x/sys: where they differ this
// does not compile, for a constant that is not to be negative is.
const (
	_ = unsafe.Sizeof(extendedLimits{}) - unsafe.Sizeof(windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{})
	_ = unsafe.Sizeof(windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}) - unsafe.Sizeof(extendedLimits{})
	_ = unsafe.Sizeof(basicLimits{}) - unsafe.Sizeof(windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{})
	_ = unsafe.Sizeof(windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{}) - unsafe.Sizeof(basicLimits{})

	_ = uint(-(limitProcessTime ^ windows.JOB_OBJECT_LIMIT_PROCESS_TIME))
	_ = uint(-(limitActiveProcess ^ windows.JOB_OBJECT_LIMIT_ACTIVE_PROCESS))
	_ = uint(-(limitProcessMemory ^ windows.JOB_OBJECT_LIMIT_PROCESS_MEMORY))
	_ = uint(-(limitJobMemory ^ windows.JOB_OBJECT_LIMIT_JOB_MEMORY))
	_ = uint(-(limitDieOnCrash ^ windows.JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION))
	_ = uint(-(limitBreakaway ^ windows.JOB_OBJECT_LIMIT_BREAKAWAY_OK))
	_ = uint(-(limitSilentBreak ^ windows.JOB_OBJECT_LIMIT_SILENT_BREAKAWAY_OK))
	_ = uint(-(limitKillOnClose ^ windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE))

	_ = uint(-(uiHandles ^ windows.JOB_OBJECT_UILIMIT_HANDLES))
	_ = uint(-(uiReadClipboard ^ windows.JOB_OBJECT_UILIMIT_READCLIPBOARD))
	_ = uint(-(uiWriteClipboard ^ windows.JOB_OBJECT_UILIMIT_WRITECLIPBOARD))
	_ = uint(-(uiSystemParameters ^ windows.JOB_OBJECT_UILIMIT_SYSTEMPARAMETERS))
	_ = uint(-(uiDisplaySettings ^ windows.JOB_OBJECT_UILIMIT_DISPLAYSETTINGS))
	_ = uint(-(uiGlobalAtoms ^ windows.JOB_OBJECT_UILIMIT_GLOBALATOMS))
	_ = uint(-(uiDesktop ^ windows.JOB_OBJECT_UILIMIT_DESKTOP))
	_ = uint(-(uiExitWindows ^ windows.JOB_OBJECT_UILIMIT_EXITWINDOWS))
)

// A Job is a Job Object. Its methods may be called concurrently, but for Close.
type Job struct{ handle windows.Handle }

// New makes a job, sets it to s and reads that back.
func New(s Settings) (*Job, error) {
	handle, err := windows.CreateJobObject(nil, nil) // no name, and not inherited
	if err != nil {
		return nil, fmt.Errorf("making a job object: %w", err)
	}
	j := &Job{handle}
	limits, ui := s.structures()
	if err := errors.Join(set(handle, windows.JobObjectExtendedLimitInformation, &limits), set(handle, windows.JobObjectBasicUIRestrictions, &ui)); err != nil {
		j.Close()
		return nil, fmt.Errorf("setting a job object: %w", err)
	}
	got, err := j.Read()
	if err == nil {
		if wrong := s.Differs(got); wrong != nil {
			err = errors.New(strings.Join(wrong, "; "))
		}
	}
	if err != nil {
		j.Close()
		return nil, fmt.Errorf("reading back a job object: %w", err)
	}
	return j, nil
}

func set[T any](job windows.Handle, class uint32, v *T) error {
	_, err := windows.SetInformationJobObject(job, class, uintptr(unsafe.Pointer(v)), uint32(unsafe.Sizeof(*v)))
	return err
}

func query[T any](job windows.Handle, class int32, v *T) error {
	return windows.QueryInformationJobObject(job, class, uintptr(unsafe.Pointer(v)), uint32(unsafe.Sizeof(*v)), nil)
}

// Read returns what the job says that it is set to.
func (j *Job) Read() (Settings, error) {
	limits, ui := new(extendedLimits), new(uint32)
	if err := errors.Join(query(j.handle, windows.JobObjectExtendedLimitInformation, limits), query(j.handle, windows.JobObjectBasicUIRestrictions, ui)); err != nil {
		return Settings{}, err
	}
	return settingsOf(*limits, *ui), nil
}

// Active returns how many processes run in the job.
func (j *Job) Active() (int, error) {
	a := new(accounting)
	if err := query(j.handle, windows.JobObjectBasicAccountingInformation, a); err != nil {
		return 0, err
	}
	return int(a.active), nil
}

// Assign puts a process into the job.
func (j *Job) Assign(process windows.Handle) error {
	return windows.AssignProcessToJobObject(j.handle, process)
}

// Terminate ends all processes of the job, with the exit status code.
func (j *Job) Terminate(code uint32) error { return windows.TerminateJobObject(j.handle, code) }

// Close gives the job back. Its processes end.
func (j *Job) Close() { windows.CloseHandle(j.handle) }

// disableMaxPrivilege takes all privileges but one (DISABLE_MAX_PRIVILEGE, winnt.h).
const disableMaxPrivilege = 0x1

// NewToken returns our own token without privileges, without the rights of
// administrators, and with the label of low integrity.
func NewToken() (windows.Token, error) {
	var own, restricted windows.Token
	const rights = windows.TOKEN_DUPLICATE | windows.TOKEN_ASSIGN_PRIMARY | windows.TOKEN_QUERY | windows.TOKEN_ADJUST_DEFAULT
	if err := windows.OpenProcessToken(windows.CurrentProcess(), rights, &own); err != nil {
		return 0, fmt.Errorf("opening our token: %w", err)
	}
	defer own.Close()
	admins, err := windows.CreateWellKnownSid(windows.WinBuiltinAdministratorsSid)
	if err != nil {
		return 0, err
	}
	// Not among the groups of the token, it changes nothing.
	deny := []windows.SIDAndAttributes{{Sid: admins}}
	call := windows.NewLazySystemDLL("advapi32.dll").NewProc("CreateRestrictedToken")
	if err := call.Find(); err != nil {
		return 0, err
	}
	ok, _, err := call.Call(uintptr(own), disableMaxPrivilege,
		uintptr(len(deny)), uintptr(unsafe.Pointer(&deny[0])), 0, 0, 0, 0, uintptr(unsafe.Pointer(&restricted)))
	if ok == 0 {
		return 0, fmt.Errorf("restricting our token: %w", err)
	}
	low, err := windows.StringToSid(LowIntegrity)
	if err == nil {
		label := windows.Tokenmandatorylabel{Label: windows.SIDAndAttributes{Sid: low, Attributes: windows.SE_GROUP_INTEGRITY}}
		err = windows.SetTokenInformation(restricted, windows.TokenIntegrityLevel, (*byte)(unsafe.Pointer(&label)), label.Size())
	}
	if err != nil {
		restricted.Close()
		return 0, fmt.Errorf("lowering the integrity of our token: %w", err)
	}
	return restricted, nil
}

// ReadToken returns what the token of a process says.
func ReadToken(process windows.Handle) (Token, error) {
	var t windows.Token
	if err := windows.OpenProcessToken(process, windows.TOKEN_QUERY, &t); err != nil {
		return Token{}, err
	}
	defer t.Close()
	b, err := tokenInfo(t, windows.TokenIntegrityLevel)
	if err != nil {
		return Token{}, err
	}
	read := Token{Integrity: (*windows.Tokenmandatorylabel)(unsafe.Pointer(&b[0])).Label.Sid.String()}
	if b, err = tokenInfo(t, windows.TokenPrivileges); err != nil {
		return Token{}, err
	}
	for _, p := range (*windows.Tokenprivileges)(unsafe.Pointer(&b[0])).AllPrivileges() {
		name, err := privilege(p.Luid)
		if err != nil {
			return Token{}, err
		}
		read.Privileges = append(read.Privileges, name)
	}
	return read, nil
}

// tokenInfo returns one class of what a token knows, of 8 bytes at least.
func tokenInfo(t windows.Token, class uint32) ([]byte, error) {
	n := uint32(64)
	for {
		b := make([]byte, n)
		err := windows.GetTokenInformation(t, class, &b[0], n, &n)
		if err == nil {
			return b, nil
		}
		if err != windows.ERROR_INSUFFICIENT_BUFFER || n <= uint32(len(b)) {
			return nil, err
		}
	}
}

// privilege returns the name of a privilege.
func privilege(id windows.LUID) (string, error) {
	call := windows.NewLazySystemDLL("advapi32.dll").NewProc("LookupPrivilegeNameW")
	if err := call.Find(); err != nil {
		return "", err
	}
	name := make([]uint16, 64)
	n := uint32(len(name))
	ok, _, err := call.Call(0, uintptr(unsafe.Pointer(&id)), uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(&n)))
	if ok == 0 {
		return "", fmt.Errorf("naming a privilege: %w", err)
	}
	return windows.UTF16ToString(name), nil
}

// A Process is one that was made suspended.
type Process struct{ Handle, thread windows.Handle }

// A Command is what Create starts. Handles are inherited, the first three as the streams
// of the program.
type Command struct {
	Program, Line, Dir string
	Environment        []uint16
	Handles            []windows.Handle
	Token              windows.Token
}

// Create makes the process of c, suspended. It is no error of the caller's if the
// program is not there: see the error of the system.
func Create(c Command) (*Process, error) {
	program, err := windows.UTF16PtrFromString(c.Program)
	if err != nil {
		return nil, err
	}
	line, err := windows.UTF16PtrFromString(c.Line)
	if err != nil {
		return nil, err
	}
	dir, err := windows.UTF16PtrFromString(c.Dir)
	if err != nil {
		return nil, err
	}
	inherited, err := inheritable(c.Handles)
	if err != nil {
		return nil, err
	}
	defer closeHandles(inherited)
	attributes, err := windows.NewProcThreadAttributeList(1)
	if err != nil {
		return nil, err
	}
	defer attributes.Delete()
	err = attributes.Update(windows.PROC_THREAD_ATTRIBUTE_HANDLE_LIST, unsafe.Pointer(&inherited[0]), uintptr(len(inherited))*unsafe.Sizeof(inherited[0]))
	if err != nil {
		return nil, err
	}
	start := windows.StartupInfoEx{ProcThreadAttributeList: attributes.List()}
	start.Cb = uint32(unsafe.Sizeof(start))
	start.Flags = windows.STARTF_USESTDHANDLES
	start.StdInput, start.StdOutput, start.StdErr = inherited[0], inherited[1], inherited[2]
	var made windows.ProcessInformation
	const flags = windows.CREATE_SUSPENDED | windows.CREATE_UNICODE_ENVIRONMENT | windows.EXTENDED_STARTUPINFO_PRESENT | windows.CREATE_NO_WINDOW
	err = windows.CreateProcessAsUser(c.Token, program, line, nil, nil, true, flags, &c.Environment[0], dir, &start.StartupInfo, &made)
	if err != nil {
		return nil, err
	}
	return &Process{made.Process, made.Thread}, nil
}

// inheritable returns copies of handles that a child can inherit.
func inheritable(handles []windows.Handle) ([]windows.Handle, error) {
	if len(handles) < 3 {
		return nil, errors.New("three streams are needed")
	}
	self, copies := windows.CurrentProcess(), []windows.Handle{}
	for _, h := range handles {
		var c windows.Handle
		if err := windows.DuplicateHandle(self, h, self, &c, 0, true, windows.DUPLICATE_SAME_ACCESS); err != nil {
			closeHandles(copies)
			return nil, fmt.Errorf("copying a handle: %w", err)
		}
		copies = append(copies, c)
	}
	return copies, nil
}

func closeHandles(handles []windows.Handle) {
	for _, h := range handles {
		windows.CloseHandle(h)
	}
}

// Resume lets the process run.
func (p *Process) Resume() error {
	if _, err := windows.ResumeThread(p.thread); err != nil {
		return err
	}
	return nil
}

// Wait blocks until the process has ended and returns its status.
func (p *Process) Wait() (uint32, error) {
	if _, err := windows.WaitForSingleObject(p.Handle, windows.INFINITE); err != nil {
		return 0, err
	}
	var code uint32
	err := windows.GetExitCodeProcess(p.Handle, &code)
	return code, err
}

// Terminate ends the process with the exit status code.
func (p *Process) Terminate(code uint32) error { return windows.TerminateProcess(p.Handle, code) }

// Close gives back what is held of the process.
func (p *Process) Close() { closeHandles([]windows.Handle{p.Handle, p.thread}) }

// Label returns the label of a file or directory as a security descriptor.
func Label(path string) (string, error) {
	sd, err := windows.GetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, windows.LABEL_SECURITY_INFORMATION)
	if err != nil {
		return "", err
	}
	return sd.String(), nil
}
