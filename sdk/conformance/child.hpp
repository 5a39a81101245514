// SPDX-License-Identifier: Apache-2.0
// A child process of --isolate: starting, reading, ending it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <string>
#include <vector>

namespace tenon::conform {

// Output of a child, cut into sections at kMark: the text of each case, and the text outside of
// cases.
class Output {
 public:
  void add(std::string_view bytes);
  // The text of the first case that has ended and was not asked for yet.
  std::string take();
  // The text since the last mark.
  std::string rest() const;

 private:
  struct Section {
    std::string text{};
    size_t left_out = 0;
    void add(std::string_view bytes);
    std::string whole() const;
  };
  std::string raw_{};  // may end with a part of a mark
  Section section_{};
  bool inside_ = false;
  std::deque<std::string> ended_{};
};

// The process, in a process group of its own. Ends with this object, and with this process.
class Child {
 public:
  using Clock = std::chrono::steady_clock;

  // Runs this program with these words.
  explicit Child(const std::vector<std::string>& words);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // To be polled; -1 after their end.
  int reports() const { return reports_; }
  int output() const { return output_; }
  // Reads what has come, without waiting. Returns whole messages.
  std::vector<std::string> read();
  void read_output();
  Output& text() { return text_; }

  // Asks the process to say where it is and to end.
  void ask_to_end();
  void kill();
  // Has it ended? It is reaped then, with its whole group.
  bool has_ended();
  // "" for exit status 0, else "killed by SIGSEGV", "ended with exit status 3".
  std::string how() const;

 private:
  pid_t pid_ = -1;
  int reports_ = -1, output_ = -1;
  int status_ = 0;
  bool reaped_ = false;
  std::string message_{};  // the part of one that has come
  Output text_{};
};

}  // namespace tenon::conform
