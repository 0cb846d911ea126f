import { QueryClientProvider } from '@tanstack/react-query';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { sessions } from './api/session';
import { App } from './App';
import { applyTheme, storedTheme } from './lib/theme';
import './style/base.css';
import './style/controls.css';
import './style/layout.css';
import './style/tables.css';

applyTheme(storedTheme());
const root = document.getElementById('root');
if (root === null) throw new Error('BUG: index.html has no #root');
createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={sessions}>
      <App />
    </QueryClientProvider>
  </StrictMode>,
);
