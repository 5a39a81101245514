// SPDX-License-Identifier: Apache-2.0
// Runs cases in child processes. A child reports where each case begins and ends; a child that ends
// early or takes too long gives its case a result, and the cases after it go to a new child.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <list>

#include <nlohmann/json.hpp>

#include "child.hpp"
#include "run.hpp"

namespace tenon::conform {
namespace {

using Clock = Child::Clock;
constexpr std::chrono::seconds kGrace{1};  // between asking a process to end and killing it
constexpr std::chrono::seconds kDying{5};  // after killing it; a driver may hold it for ever

// Cases of one row, in the order in which they run. None: opens the devices and ends.
struct Job {
  const FamilyRow* row = nullptr;
  std::vector<std::string> ids{};
};

std::vector<std::string> words_of(const Options& o, const Job& job) {
  std::vector<std::string> out = {"tenon_conform", "--worker"};
  out.insert(out.end(), o.how.begin(), o.how.end());
  if (job.row && o.case_files.empty()) {
    out.push_back("--family");
    out.emplace_back(job.row->family);
  }
  for (const std::string& id : job.ids) {
    out.push_back("--case");
    out.push_back(id);
  }
  return out;
}

// " in plugin 'cpu', call 'run'", from the line that tenon_report_crashes writes.
std::string place_of_crash(const std::string& text) {
  const size_t line = text.rfind("tenon: the process crashed (");
  const size_t at = line == text.npos ? line : text.find(") in ", line);
  return at == text.npos ? "" : text.substr(at + 1, text.find('\n', at) - at - 1);
}

struct Running {
  Running(const Options& o, Job given) : job(std::move(given)), child(words_of(o, job)) {}

  Job job;
  Child child;
  Clock::time_point since = Clock::now();  // the last message
  std::string current{};                   // the case that runs
  std::vector<std::string> ended{};
  std::optional<Result> held{};  // the last one, until it is known how the process ends
  std::string where{};           // active plugin calls at the end of the time
  std::string hung{};            // the case that ran then
  std::string error{};           // a message U or X
  bool finished = false, late = false;
  bool stuck = false;  // it was killed, and is still there
};

class Isolation {
 public:
  Isolation(const Options& o, const Sink& sink) : o_(o), sink_(sink) {}

  void add(Job job) { queue_.push_back(std::move(job)); }

  void run(unsigned most) {
    while ((!queue_.empty() || !running_.empty()) && interrupt::signal() == 0) {
      while (!queue_.empty() && running_.size() < most) {
        Job job = std::move(queue_.front());
        queue_.pop_front();
        running_.emplace_back(o_, std::move(job));
      }
      wait();
      for (auto r = running_.begin(); r != running_.end();) {
        read(*r);
        watch(*r);
        if (!r->stuck && !r->child.has_ended()) {
          ++r;
          continue;
        }
        read(*r);
        end(*r);
        r = running_.erase(r);
      }
    }
    for (Running& r : running_) give(r);  // interrupted
    running_.clear();
  }

 private:
  void wait() {
    std::vector<pollfd> all = {{interrupt::descriptor(), POLLIN, 0}};
    auto until = Clock::now() + std::chrono::seconds(1);
    for (const Running& r : running_) {
      for (const int descriptor : {r.child.reports(), r.child.output()})
        if (descriptor >= 0) all.push_back({descriptor, POLLIN, 0});
      until = std::min(until, r.since + (r.late ? kGrace : std::chrono::seconds(o_.timeout)));
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count() + 1;
    ::poll(all.data(), all.size(), static_cast<int>(std::clamp<int64_t>(left, 1, 1000)));
    char bytes[64];
    while (::read(interrupt::descriptor(), bytes, sizeof bytes) > 0) continue;
  }

  void read(Running& r) {
    r.child.read_output();
    for (const std::string& message : r.child.read()) {
      r.child.read_output();  // what was written before the message
      if (!r.late) r.since = Clock::now();
      const char kind = message.empty() ? 0 : message[0];
      const std::string text = message.empty() ? "" : message.substr(1);
      if (kind == 'B') r.current = text;
      if (kind == 'W') r.where = " in " + text;
      if (kind == 'D') r.finished = true;
      try {
        if (kind == 'E') take(r, text);
        if (kind == 'U') throw Usage(nlohmann::json::parse(text).get<std::string>());
        if (kind == 'X') r.error = nlohmann::json::parse(text).get<std::string>();
      } catch (const nlohmann::json::exception&) {
        not_ours(r, text);
      }
    }
  }

  // A plugin wrote to the descriptor.
  static void not_ours(Running& r, const std::string& text) {
    r.error = "its process sent a message that tenon_conform does not send: " + text.substr(0, 80);
  }

  void take(Running& r, const std::string& text) {
    give(r);
    const auto json = nlohmann::json::parse(text);
    const std::string id = json.at("id");
    const int outcome = json.at("outcome");
    const bool fits = std::ranges::find(r.job.ids, id) != r.job.ids.end() &&
                      std::ranges::find(r.ended, id) == r.ended.end() && outcome >= 0 &&
                      outcome <= static_cast<int>(Outcome::skip);
    if (!fits) return not_ours(r, text);
    r.held = Result{.id = id,
                    .sentence = json.at("sentence"),
                    .family = r.job.row->family,
                    .outcome = static_cast<Outcome>(outcome),
                    .reason = json.at("reason"),
                    .milliseconds = json.at("milliseconds"),
                    .joined = json.at("joined"),
                    .own_joined = json.at("own_joined"),
                    .refused = json.at("refused")};
    std::string output = r.child.text().take();
    if (r.held->outcome == Outcome::fail) r.held->output = std::move(output);
    r.ended.push_back(r.held->id);
    r.current.clear();
  }

  void give(Running& r) {
    if (r.held) sink_(std::move(*r.held));
    r.held.reset();
  }

  // The limit is that of a case; starting and ending a process have the same.
  void watch(Running& r) {
    const auto now = Clock::now();
    if (r.late) {
      if (now - r.since >= kGrace) r.child.kill();
      if (now - r.since >= kGrace + kDying) r.stuck = true;
    } else if (now - r.since >= std::chrono::seconds(o_.timeout)) {
      r.late = true;
      r.since = now;
      r.hung = r.current;
      r.child.ask_to_end();
    }
  }

  void end(Running& r) {
    const std::string output = r.child.text().rest();
    std::string reason = r.child.how();
    if (r.late)
      reason = (r.stuck ? "killed, but still there, after " : "killed after ") +
               std::to_string(o_.timeout) + " s" + r.where;
    else if (!r.error.empty())
      reason = r.error;
    else if (reason.empty() && !r.finished)
      reason = "ended with exit status 0 before its work was done";
    else if (!reason.empty())
      reason += place_of_crash(output);
    std::vector<std::string> missing;
    for (const std::string& id : r.job.ids)
      if (std::ranges::find(r.ended, id) == r.ended.end()) missing.push_back(id);
    const bool just_in_time = std::ranges::find(r.ended, r.hung) != r.ended.end();
    if ((reason.empty() && missing.empty()) || just_in_time) {
      give(r);
      if (!missing.empty()) queue_.push_front({r.job.row, std::move(missing)});
      return;
    }
    if (reason.empty()) reason = "ended without a result of the case";
    const Outcome outcome = r.late ? Outcome::hang : Outcome::crash;
    if (r.job.ids.empty())
      throw std::runtime_error(r.error.empty() ? "the process that opens the devices was " +
                                                     reason + "\n" + output
                                               : r.error);
    if (missing.empty() && r.held) {
      r.held->outcome = outcome;
      r.held->reason = "after the case, at the end of its process: " + reason;
      r.held->output = output;
      return give(r);
    }
    give(r);
    const std::string blamed = r.current.empty() ? missing.front() : r.current;
    if (r.current.empty()) reason = "before the case began: " + reason;
    const std::chrono::duration<double, std::milli> spent = Clock::now() - r.since;
    sink_({.id = blamed,
           .sentence = r.job.row->row.sentence,
           .family = r.job.row->family,
           .outcome = outcome,
           .reason = reason,
           .milliseconds = spent.count() + (r.late ? 1000.0 * o_.timeout : 0),
           .output = output});
    std::erase(missing, blamed);
    if (!missing.empty()) queue_.push_front({r.job.row, std::move(missing)});
  }

  const Options& o_;
  const Sink& sink_;
  std::deque<Job> queue_{};
  std::list<Running> running_{};
};

}  // namespace

void run_isolated(const Options& o, const Selection& selection, const Sink& sink) {
  Isolation first(o, sink);
  first.add({});
  first.run(1);
  Isolation all(o, sink);
  Job job;
  for (const Chosen& c : selection.units)
    for (const Case& one : c.facts.cases) {
      if (!job.ids.empty() && (o.isolate == Isolate::one || job.row != c.unit.row))
        all.add(std::exchange(job, {}));
      job.row = c.unit.row;
      job.ids.push_back(one.id);
    }
  if (!job.ids.empty()) all.add(std::move(job));
  all.run(o.jobs);
}

}  // namespace tenon::conform
