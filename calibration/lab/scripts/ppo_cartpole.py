"""After Stable-Baselines3, "Getting Started": PPO learns to balance a pole, then shows it."""

import argparse

import gymnasium as gym
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

parser = argparse.ArgumentParser()
parser.add_argument("--timesteps", type=int, default=14_000)
args = parser.parse_args()

env = gym.make("CartPole-v1")
model = PPO("MlpPolicy", env, verbose=1, seed=0)
model.learn(total_timesteps=args.timesteps)

mean_reward, std_reward = evaluate_policy(model, model.get_env(), n_eval_episodes=5)
print(f"mean reward {mean_reward:.1f} +/- {std_reward:.1f}")

vec_env = model.get_env()
obs = vec_env.reset()
for _ in range(200):
    action, _states = model.predict(obs, deterministic=True)
    obs, reward, done, info = vec_env.step(action)
