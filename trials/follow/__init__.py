"""Followers of a session that are killed and resumed, while several processes write to it.

Each follower keeps the events that it received in a file, and continues after the last one. In the
end each must have received every event once and in order, even if the notifications of other
processes' writes were lost: one in two, or all.
"""
