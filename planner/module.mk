planner_src := $(notdir $(wildcard planner/*.c))
