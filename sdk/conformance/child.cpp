// SPDX-License-Identifier: Apache-2.0
// Child processes and their pipes.
#include "child.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>

#include "run.hpp"

namespace tenon::conform {
namespace {

constexpr size_t kMostText = 64 << 10;  // that is kept of a section

[[noreturn]] void fail(const char* what) {
  throw std::runtime_error(std::string("--isolate: ") + what + ": " + std::strerror(errno));
}

std::string signal_text(int number) {
  static constexpr struct {
    int number;
    const char* name;
  } kNames[] = {{SIGSEGV, "SIGSEGV"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},
                {SIGILL, "SIGILL"},   {SIGFPE, "SIGFPE"},   {SIGKILL, "SIGKILL"},
                {SIGTERM, "SIGTERM"}, {SIGTRAP, "SIGTRAP"}, {SIGSYS, "SIGSYS"},
                {SIGPIPE, "SIGPIPE"}, {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"},
                {SIGINT, "SIGINT"},   {SIGHUP, "SIGHUP"},   {SIGQUIT, "SIGQUIT"}};
  for (const auto& each : kNames)
    if (each.number == number) return each.name;
  return "signal " + std::to_string(number);
}

// Two descriptors that are closed unless they are taken.
struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() {
    if (::pipe2(ends, O_CLOEXEC) != 0) fail("pipe");
  }
  ~Pipe() {
    for (const int end : ends)
      if (end >= 0) ::close(end);
  }
  int take_reader() {
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return std::exchange(ends[0], -1);
  }
};

// After the fork: async-signal-safe functions only.
[[noreturn]] void become(char* const* words, int nothing, int output, int reports, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) _exit(1);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  if (reports == kReports)
    ::fcntl(reports, F_SETFD, 0);
  else
    ::dup2(reports, kReports);
  ::execv("/proc/self/exe", words);
  _exit(127);
}

// Calls take(bytes) with what has come; closes the descriptor at its end. A child that writes
// without pause does not keep the others waiting.
template <class Take>
void drain(int& descriptor, Take take) {
  char bytes[16384];
  for (int reads = 0; descriptor >= 0 && reads < 64; ++reads) {
    const ssize_t n = ::read(descriptor, bytes, sizeof bytes);
    if (n > 0) {
      take(std::string_view(bytes, static_cast<size_t>(n)));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    ::close(std::exchange(descriptor, -1));
  }
}

}  // namespace

void Output::Section::add(std::string_view bytes) {
  text += bytes;
  if (text.size() <= 2 * kMostText) return;
  left_out += text.size() - kMostText;
  text.erase(0, text.size() - kMostText);
}
std::string Output::Section::whole() const {
  const size_t more = text.size() > kMostText ? text.size() - kMostText : 0;
  if (left_out + more == 0) return text;
  return "[" + std::to_string(left_out + more) + " bytes left out]\n" + text.substr(more);
}

void Output::add(std::string_view bytes) {
  raw_ += bytes;
  for (size_t at; (at = raw_.find(kMark)) != raw_.npos;) {
    section_.add(std::string_view(raw_).substr(0, at));
    raw_.erase(0, at + kMark.size());
    if (inside_) ended_.push_back(section_.whole());
    section_ = {};
    inside_ = !inside_;
  }
  const size_t sure = raw_.size() - std::min(raw_.size(), kMark.size() - 1);
  section_.add(std::string_view(raw_).substr(0, sure));
  raw_.erase(0, sure);
}
std::string Output::take() {
  if (ended_.empty()) return {};
  std::string out = std::move(ended_.front());
  ended_.pop_front();
  return out;
}
std::string Output::rest() const { return section_.whole() + raw_; }

Child::Child(const std::vector<std::string>& words) {
  static const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  Pipe reports, output;
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t self = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) fail("fork");
  if (pid_ == 0) become(argv.data(), nothing, output.ends[1], reports.ends[1], self);
  ::setpgid(pid_, pid_);  // whoever is first
  reports_ = reports.take_reader();
  output_ = output.take_reader();
}

Child::~Child() {
  if (!reaped_) {
    kill();
    // A driver may hold it for ever; then it is left behind.
    constexpr int kTries = 200;
    for (int k = 0; k < kTries && !has_ended(); ++k) ::usleep(10'000);
  }
  if (reports_ >= 0) ::close(reports_);
  if (output_ >= 0) ::close(output_);
}

std::vector<std::string> Child::read() {
  std::vector<std::string> out;
  drain(reports_, [&](std::string_view bytes) {
    for (const char c : bytes) {
      if (c != '\n') {
        message_ += c;
      } else if (!message_.empty()) {
        out.push_back(std::exchange(message_, {}));
      }
    }
  });
  return out;
}
void Child::read_output() {
  drain(output_, [&](std::string_view bytes) { text_.add(bytes); });
}

void Child::ask_to_end() { ::kill(pid_, SIGTERM); }
void Child::kill() {
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
}

bool Child::has_ended() {
  siginfo_t info{};
  if (reaped_) return true;
  // Not reaped yet, so its number is not used again, and what it has left can be killed.
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0)
    return false;
  ::kill(-pid_, SIGKILL);
  while (::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) continue;
  reaped_ = true;
  return true;
}

std::string Child::how() const {
  if (WIFSIGNALED(status_)) {
    const std::string text = "killed by " + signal_text(WTERMSIG(status_));
    return WTERMSIG(status_) == SIGKILL ? text + " (hint: is the machine short of memory?)" : text;
  }
  if (WEXITSTATUS(status_) == 0) return {};
  return "ended with exit status " + std::to_string(WEXITSTATUS(status_));
}

}  // namespace tenon::conform
