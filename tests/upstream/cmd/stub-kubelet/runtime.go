package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

const tickInterval = 100 * time.Millisecond

// podRuntime is a container runtime without containers: each pod is a directory.
type podRuntime struct {
	scratch string

	mutex   sync.Mutex
	running map[int]struct{}
	stopped bool
}

func newPodRuntime(scratch string) *podRuntime {
	return &podRuntime{scratch: scratch, running: map[int]struct{}{}}
}

// ExecInContainer runs the command in the pod's directory, which is also its HOME.
func (p *podRuntime) ExecInContainer(_ context.Context, pod, _ string, _ string, command []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if len(command) == 0 {
		return errors.New("no command given")
	}
	directory := filepath.Join(p.scratch, filepath.FromSlash(pod))
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	process := exec.Command(command[0], command[1:]...)
	process.Dir = directory
	process.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + directory, "HOSTNAME=" + filepath.Base(pod)}
	if tty {
		return p.runOnTerminal(process, in, out, resize)
	}
	return p.runOnPipes(process, in, out, errOut)
}

func (p *podRuntime) runOnPipes(process *exec.Cmd, in io.Reader, out, errOut io.WriteCloser) error {
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	process.Stdout = out
	process.Stderr = errOut
	var stdin io.WriteCloser
	if in != nil {
		var err error
		// A pipe instead of process.Stdin, because Wait would wait for the end of the client's
		// input.
		if stdin, err = process.StdinPipe(); err != nil {
			return err
		}
	}
	if err := p.start(process, process.Start); err != nil {
		return err
	}
	defer p.finished(process)
	if stdin != nil {
		go func() {
			_, _ = io.Copy(stdin, in)
			_ = stdin.Close()
		}()
	}
	return exitError(process.Wait())
}

func (p *podRuntime) runOnTerminal(process *exec.Cmd, in io.Reader, out io.WriteCloser, resize <-chan remotecommand.TerminalSize) error {
	var terminal *os.File
	process.Env = append(process.Env, "TERM=xterm")
	err := p.start(process, func() (err error) {
		terminal, err = pty.Start(process)
		return err
	})
	if err != nil {
		return err
	}
	defer p.finished(process)
	defer terminal.Close()
	go func() {
		for size := range resize {
			_ = pty.Setsize(terminal, &pty.Winsize{Cols: size.Width, Rows: size.Height})
		}
	}()
	if in != nil {
		go func() { _, _ = io.Copy(terminal, in) }()
	}
	copied := make(chan struct{})
	go func() {
		if out != nil {
			_, _ = io.Copy(out, terminal)
		}
		close(copied)
	}()
	err = exitError(process.Wait())
	select {
	case <-copied:
	case <-time.After(time.Second):
		// Give up: a child that outlives the command keeps the terminal open.
	}
	return err
}

func (p *podRuntime) start(process *exec.Cmd, start func() error) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.stopped {
		return errors.New("stub-kubelet is stopping")
	}
	if err := start(); err != nil {
		// The error type of a container runtime, with the exit code of a shell.
		return utilexec.CodeExitError{Err: err, Code: 127}
	}
	p.running[process.Process.Pid] = struct{}{}
	return nil
}

func (p *podRuntime) finished(process *exec.Cmd) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.running, process.Process.Pid)
}

func (p *podRuntime) killAll() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.stopped = true
	for pid := range p.running {
		// The negative pid addresses the command's process group, which includes its children.
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
}

func exitError(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	code := exit.ExitCode()
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	return utilexec.CodeExitError{Err: err, Code: code}
}

// AttachContainer writes a line to stdout every 100 ms and echoes stdin. It ends at the end of
// stdin, or without stdin when the client disconnects.
func (p *podRuntime) AttachContainer(_ context.Context, _, _ string, _ string, in io.Reader, out, _ io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize) error {
	go func() {
		for range resize {
		}
	}()
	var writing sync.Mutex
	write := func(bytes []byte) error {
		if out == nil {
			return nil
		}
		writing.Lock()
		defer writing.Unlock()
		_, err := out.Write(bytes)
		return err
	}
	var inputEnded chan struct{}
	if in != nil {
		inputEnded = make(chan struct{})
		go func() {
			defer close(inputEnded)
			buffer := make([]byte, 32*1024)
			for {
				n, err := in.Read(buffer)
				if n > 0 && write(buffer[:n]) != nil || err != nil {
					return
				}
			}
		}()
	}
	ticker := time.NewTicker(tickInterval)
	defer ticker.Stop()
	for number := 1; ; number++ {
		select {
		case <-inputEnded:
			return nil
		case <-ticker.C:
			if write(fmt.Appendf(nil, "tick %d\n", number)) != nil {
				return nil
			}
		}
	}
}

// PortForward connects the stream with the port on 127.0.0.1.
func (p *podRuntime) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	defer connection.Close()
	go func() {
		_, _ = io.Copy(connection, stream)
		_ = connection.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, connection)
	return err
}
