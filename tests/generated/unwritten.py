"""Texts to translate that no literal of the sources shows: of click, of the system, and put together of parts."""

from __future__ import annotations

# what click says by itself
HELP = """Usage
Options
Commands
Arguments
Examples
Example
States
Problems
default
required
env
Name
Synopsis
Description
Exit status
See also
inspect, check and repair Apache RocketMQ stores offline
Show this message and exit.
Print the version and exit.""".splitlines()
CLICK = """Missing option {option}.
Missing argument {argument}.
No such option: {option}
No such option: {option} Did you mean {other}?
No such option: {option} (Possible options: {others})
No such option {option}.
No such option {option}. Did you mean {other}?
No such option {option}. (Possible options: {others})
No such option {option}. (Did you mean one of: {others}?)
No such command {command}.
No such command {command}. Did you mean {other}?
No such command {command}. (Did you mean one of: {others}?)
Missing command.
Option {option} requires an argument.
Option {option} requires {number} arguments.
Option {option} does not take a value.
Argument {argument} takes {number} values.
Invalid value for {option}: {problem!t}
Invalid value: {problem!t}
Missing parameter: {parameter}
'{value}' is not a valid integer.
'{value}' is not a valid integer range.
'{value}' is not a valid float.
{value} is not in the range {range}.
'{value}' is not one of {choices}.
'{value}' is not a valid boolean.
{value} is not {choice}.
{value} is not a valid boolean. Recognized values: {states}
Got unexpected extra argument ({arguments})
Got unexpected extra arguments ({arguments})
Try '{command} --help'.
{kind} {path} does not exist.
File {path} does not exist.
Directory {path} does not exist.
Path {path} does not exist.
File {path} is a directory.
Directory {path} is a file.
{path} is not readable.
{kind} {path} is a file.
{kind} {path} is a directory.
{kind} {path} is not readable.
{kind} {path} is not writable.
Could not open file {path}: {reason}""".splitlines()
# what the system says of errors
SYSTEM = """No such file or directory
Permission denied
Operation not permitted
Is a directory
Not a directory
File exists
Directory not empty
No space left on device
Disk quota exceeded
Read-only file system
Input/output error
Too many open files
Too many open files in system
File name too long
File too large
Invalid argument
Device or resource busy
Cannot allocate memory
Stale file handle
Too many levels of symbolic links
Invalid cross-device link
Structure needs cleaning
Connection refused
Connection reset by peer
Connection timed out
Broken pipe
Address already in use
Cannot assign requested address
No route to host
Network is unreachable
Name or service not known
Temporary failure in name resolution""".splitlines()
# put together of parts, which no literal of the sources shows
COMPOSED = """minute
is no file of a store by its name or its content
this package of rmqctl comes without it: install the wheel with the extra rmqctl[{extra}] elsewhere
or add --recover, which does so and then serves it
`{command_path}` without an action lists.
hour
day
Findings
Where
Files
Levels
Settings
Parts
Groups
Due
Disk
and {number} more
{title}; the numbers are in the tables below
loses {N message}
leaves {N message} out of every queue
loses {N index entry}
never delivers {N delayed message}
{N error}, {N warning}, {N notice}; checked {N message} in {N commitlog file}{rest!t}
{N error}, {N warning}, {N notice}; checked {N message} in {N commitlog file} (share {subset}){rest!t}
{N error}, {N warning}, {N notice}; checked {N commitlog file}, not every message{rest!t}
A broker {version}
damage ({reason}: {detail})
expected {expected}
found {found}
next: {command}
at {offset}
in {file}
({costs})
Did you mean '{name}'?
its offset is {offset}, and the group consumes by POP in order: it was handed out, {why}
its offset {offset} is past it, by {by}
its offset {offset} is not past it, {ahead}
by {N message}
messages
settings
before
after
lost
{path} is not there
there is no {path}
{N topic} would be removed
{N topic} removed
unknown: {sentence}
{N commitlog file} would be kept: {why}
{N consume queue file} would be kept: {why}
{N index file} would be kept: {why}
{N commitlog file} is kept: {why}
{N commitlog file} are kept: {why}
{N consume queue file} is kept: {why}
{N consume queue file} are kept: {why}
{N index file} is kept: {why}
{N index file} are kept: {why}
accepted, as far as files, disks and settings show {shown}.
unknown, because the disks cannot be measured.
unknown, because the disks of a server cannot be measured.
{key}={text} is neither true nor false: a broker takes false
{key}={text} is no whole number: a broker takes {number}
{key}={text} is neither true nor false
{key}={text} is no whole number
{key}={text} is no text that can be printed
a broker takes no messages here: {join}.""".splitlines()
COUNTED = {"error": "errors", "warning": "warnings", "notice": "notices", "delayed message": "delayed messages"}
COUNTED |= {"consume queue file": "consume queue files", "index file": "index files"}
COUNTED |= {"manual page": "manual pages"}
COUNTED |= {"index entry": "index entries", "good message": "good messages"}
