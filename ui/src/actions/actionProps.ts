import type { Volume } from '../api/types';

// ActionProps are the properties of each action's dialog: the volumes that it changes, and the function that closes it.
export interface ActionProps {
  volumes: Volume[];
  onClose: () => void;
}
