// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"bytes"
	"strconv"
)

// frames finds where the requests or replies in a stream of Redis's protocol (RESP2 or RESP3) end,
// however the stream is cut into pieces. It keeps no data.
type frames struct {
	line []byte // the beginning of a line that has not ended
	skip int    // bytes that are left of a string
	open []int  // elements that are left, for each array around the current element
	push bool   // the frame is a message that replies to nothing
}

// begun reports whether the stream is in the middle of a frame.
func (f *frames) begun() bool { return len(f.line) > 0 || f.skip > 0 || len(f.open) > 0 }

// next reads to the end of one frame, or of the data. It returns how many bytes that are, and
// whether a request or reply has ended with them.
func (f *frames) next(data []byte) (n int, ended bool) {
	for n < len(data) {
		elementEnded := false
		if f.skip > 0 {
			part := min(f.skip, len(data)-n)
			f.skip -= part
			n += part
			elementEnded = f.skip == 0
		} else {
			end := bytes.IndexByte(data[n:], '\n')
			if end < 0 {
				f.line = append(f.line, data[n:]...)
				return len(data), false
			}
			f.line = append(f.line, data[n:n+end+1]...)
			n += end + 1
			elementEnded = f.header(f.line)
			f.line = f.line[:0]
		}
		if elementEnded && f.close() {
			push := f.push
			f.push = false
			return n, !push
		}
	}
	return n, false
}

// header takes the line with which an element begins and reports whether it is all of it.
func (f *frames) header(line []byte) bool {
	size, err := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	if err != nil {
		return true // a line of text
	}
	switch line[0] {
	case '$', '=', '!':
		if size >= 0 {
			f.skip = size + len("\r\n")
		}
		return size < 0 // null
	case '%':
		size *= 2
	case '*', '~':
	case '>':
		f.push = len(f.open) == 0
	default:
		return true // a number
	}
	if size > 0 {
		f.open = append(f.open, size)
	}
	return size <= 0
}

// close ends an element, with it the arrays of which it is the last, and reports whether nothing
// is open any more.
func (f *frames) close() bool {
	for len(f.open) > 0 {
		last := len(f.open) - 1
		if f.open[last]--; f.open[last] > 0 {
			return false
		}
		f.open = f.open[:last]
	}
	return true
}
